// Package vectorize rewrites a program into one that does the same for many inputs at
// once: every value gets a leading axis, along which the inputs are stacked, as with vmap
// in JAX.
//
// It is for hosts: update programs of parameters with equal shapes that are the same
// become one program, with a few large products in place of many small ones. Only the
// rewriting from program to program belongs here; the caller decides which programs to
// combine, and whether that is faster on a device.
package vectorize
