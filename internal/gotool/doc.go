// Package gotool runs the go command for cage, which builds plugins from source and
// writes new ones. All such calls go through this package, so that they use the
// toolchain, the experiments and the cgo setting with which this executable was built,
// whatever the environment says. Whatever the Makefile has compiled is then found in the
// build cache, and nothing is compiled twice.
package gotool
