// Package spec has the form of a plugin's answers: the programs for one site or one
// tensor, the names of their inputs and outputs, what they must satisfy, and how large they
// may be.
//
// Hosts, the kit and tests of plugins read it. Package sdk writes answers from what authors
// write, so an author of a plugin does not need it.
package spec
