// Package wire has the protocol between the processes of a run: processes.proto and generated code.
package wire

//go:generate go run ../../../../tools/protogen processes.proto
