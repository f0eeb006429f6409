// Package wire is the process boundary: the .proto files, the code generated
// from them, and the conversion of programs and settings to and from it.
//
// Conversion from the wire is strict, because the other side may be any program
// at all: an unknown operation, an absent type or a number out of range is an
// error that names the place. It does not replace [program.Program.Validate].
//
// Messages of the protocol leave this room only to the two ends that speak it,
// the servers of package sdk and the clients of package sdk/client; everybody
// else sees the types of packages sdk and program. Nothing here may import
// package sdk, which imports this one.
package wire

//go:generate go run ./generate
