// Package sdktest is the conformance kit: it checks that a plugin does what the
// interface promises, whatever its algorithm and its language. In the plugin's own
// tests it takes one line,
//
//	func TestConformance(t *testing.T) { sdktest.Quantizer(t, absmax{}) }
//
// and the command "cage plugins test NAME" runs the same checks on the executable of any
// plugin, and also runs the programs on a device. A plugin that passes keeps every promise that
// can be tested without knowing its algorithm; values of another implementation ([Golden]) test the algorithm.
//
// Programs run on the float64 oracle and on the machines that the caller adds. A device
// computes in binary32, and its results differ by rounding errors. The kit finds out how
// much they may differ: it changes the inputs by a few units in the last place and looks
// at how far the results move. So no author has to give a tolerance.
//
// A run of the kit is a session: a list of steps, each with a trial that collects what
// failed. The tables in quantizer.go and optimizer.go name all checks; each file has
// checks that belong together. The package knows no host and no device.
package sdktest
