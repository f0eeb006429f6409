// Package program is the language in which plugins answer: small, loop-free,
// statically shaped tensor programs in SSA form.
//
// A quantizer or optimizer plugin does not compute on tensors. It is asked
// once, when a run starts, and answers with a [Program] that the host checks,
// inlines into its training graph, differentiates and compiles. This package
// has the operations and their exact meaning ([Ops]), the [Builder] that
// writes programs, the check of programs from elsewhere ([Program.Validate]), and
// their text form ([Program.String]). Programs are executed elsewhere: by the float64
// oracle (package reference), and by the host on a device. Nothing here may know
// about plugins, processes or a tensor engine.
package program
