// Package wire contains the gRPC protocol between the processes of a run.
package wire

//go:generate go run ../../../../tools/protogen processes.proto
