// Package repocheck tests the repository as a whole: which packages may import which, that every
// package has one comment, that every parser has a fuzz target, and which code may change files. It
// contains only tests, whose failures explain the rule.
package repocheck
