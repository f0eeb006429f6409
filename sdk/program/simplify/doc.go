// Package simplify rewrites programs into smaller ones that give the same bits: equal
// operations are merged, operations that change nothing are removed, and so is whatever
// no output needs.
//
// Only exact identities belong here: x·1 is x, x − 0 is x, and a transpose of a transpose
// is one transpose; but x + 0 is not x when x is −0, and products of constants are left
// alone because they would round differently. The gradient transform (package autodiff)
// writes its programs through a [Writer].
package simplify
