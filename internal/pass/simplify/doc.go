// Package simplify rewrites programs into smaller ones that give the same bits:
// equal operations become one, operations that change nothing disappear, and
// whatever no output needs is dropped.
//
// Only exact identities belong here: x·1 is x, x − 0 is x and a transpose of a
// transpose is one transpose, but x + 0 is not x when x is −0, and products of
// constants are left alone because they would round differently. The gradient
// transform (package autodiff) writes its programs through a [Writer].
package simplify
