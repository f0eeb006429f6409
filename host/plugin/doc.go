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
// The protocol is spoken by package sdk/client over hashicorp/go-plugin. Both sides
// make a certificate for the one connection, and speak TLS; a plugin in another
// language may leave that out. The socket lies in a directory that only the user can
// enter. docs/security.md lists what plugins may do, and what hostile ones get.
package plugin
