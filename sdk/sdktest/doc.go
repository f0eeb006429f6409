// Package sdktest is the conformance kit: it checks that a plugin does what the
// interface promises, whatever its algorithm and its language. In the plugin's own
// tests it takes one line,
//
//	func TestConformance(t *testing.T) { sdktest.Quantizer(t, absmax{}) }
//
// and the command "cage plugins test NAME" runs the same checks on any plugin's
// executable, there also on a device. A plugin that passes keeps every promise that
// can be tested without knowing its algorithm; golden files ([Golden]) test the
// algorithm.
//
// Programs run on the float64 oracle and on the machines that the caller adds.
// Where a machine computes in binary32 its results are compared within what the
// program itself makes of a change of its inputs by a few units in the last place,
// so that no check needs a tolerance of the plugin's author.
//
// The package knows no host and no device. One check stands in one file together
// with what it needs.
package sdktest
