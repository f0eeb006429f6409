// Package wire contains the messages of the plugin protocol: the .proto files, the code generated
// from them, and the conversion of programs and settings to and from messages.
//
// Decoding is strict, because the peer is not trusted: an unknown operation, an absent
// type or a number out of range is an error that names the offending part. Decoded
// programs must still be checked by [program.Program.Validate].
//
// Only the two ends of the protocol use messages, the servers in package sdk and the
// clients in package sdk/client. All other packages use the types of packages sdk and
// program. Nothing here may import package sdk, which imports this package.
package wire

//go:generate go run ../../../tools/protogen
