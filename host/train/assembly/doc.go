// Package assembly turns a checked configuration into the parts from which training,
// evaluation and benchmarks are made: token files, the model, the programs of the
// plugins, and the plan of a step.
//
// Some mistakes, such as an unknown parameter of a plugin or a token file with another
// vocabulary, show only when these parts are made. They are reported here, with the line
// of the configuration. Nothing is computed here, and nothing keeps running: once the
// programs have been collected, the plugins are stopped.
package assembly
