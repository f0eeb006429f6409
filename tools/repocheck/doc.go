// Package repocheck tests the repository as a whole: which package may import which, that
// every package has one comment, that every parser has a fuzz target, and who may change
// files. It has no code; a failing test gives the reason for its rule.
package repocheck
