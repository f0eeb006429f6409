// Package spec defines the form of a plugin's answers: the programs for one site or one tensor, the
// names of their inputs and outputs, their validity rules, and the limits on their size.
//
// It is for hosts, the conformance kit and tests of plugins. Package sdk builds answers from
// the code of an author, who does not need this package.
package spec
