// Package assembly turns a checked configuration into the parts that training,
// evaluation and benchmarks are made of: token files, the model, the programs of
// the plugins, and the plan of a step.
//
// Some mistakes only these parts can reveal, such as an unknown parameter of a plugin or
// a token file with another vocabulary. They are reported here, with the line of the
// configuration. Nothing is computed, and nothing keeps running: once the programs are
// collected, the plugins are stopped.
package assembly
