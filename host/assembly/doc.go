// Package assembly turns a checked configuration into the parts that training,
// evaluation and benchmarks are made of: token files, the model, the programs of
// the plugins, and the plan of a step.
//
// It is where names become things and where mistakes that only the things can
// reveal (an unknown plugin parameter, a token file with another vocabulary) are
// reported with the line of the configuration. It computes nothing and keeps
// nothing running: once the programs are collected the plugins are stopped.
package assembly
