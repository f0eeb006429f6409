// Package plugin finds, starts, asks and stops plugins: the host's side of the
// process boundary.
//
// A plugin is somebody else's program. Nothing that it does, be it to crash, to
// hang, to be stopped, to print garbage or to answer with an ill-typed program,
// may do more harm here than one clear [Error] within the time limits; and however
// the host ends, no plugin outlives it. What plugins are for, quantizers,
// optimizers and their programs, is not decided here: the answers are checked and
// handed on.
//
// The protocol is spoken by package sdk/client over hashicorp/go-plugin. Its
// transport is not encrypted: the socket lies in a directory that only the user
// can enter, nothing but shapes and programs crosses it, and with TLS every plugin
// would start later and those in other languages would have to implement it.
package plugin
