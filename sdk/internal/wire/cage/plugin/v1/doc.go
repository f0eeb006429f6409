// Package pluginv1 is generated from the .proto files beside it, which document
// it. Only package wire and the two ends of the protocol may import it.
package pluginv1
