// Package wire has the messages of the plugin protocol: the .proto files, the code
// generated from them, and the conversion of programs and settings to and from messages.
//
// Reading a message is strict, because the other side may be any program at all: an
// unknown operation, an absent type or a number out of range is an error that names the
// place. The programs that are read must still be checked by [program.Program.Validate].
//
// Only the two ends of the protocol use messages, the servers in package sdk and the
// clients in package sdk/client. All other packages see the types of packages sdk and
// program. Nothing here may import package sdk, which imports this package.
package wire

//go:generate go run ../../../tools/protogen
