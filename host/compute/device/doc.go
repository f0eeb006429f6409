// Package device names what a configuration can ask of a device: its kind, and how it is to compute. The names have no
// code: package host/compute/engine opens devices, and whoever only reads a configuration needs no tensor engine.
package device
