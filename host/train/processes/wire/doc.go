// Package wire is the protocol between the processes of one training: processes.proto, and the code that is generated from it.
package wire

//go:generate go run ../../../../tools/protogen processes.proto
