// Package vectorize rewrites a program into one that does the same for many inputs at
// once: every value gets a leading axis, along which the inputs are stacked, as vmap
// does in JAX.
//
// It is for hosts: parameters of one shape whose update programs are the same become
// one program with few large products in the place of many small ones. Only the
// rewriting belongs here, from program to program; which programs to put together, and
// whether that is faster on a device, is the caller's decision.
package vectorize
