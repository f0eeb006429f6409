// Package pyrandom draws the same random numbers as Python programs: those of CPython's
// random.Random, and of numpy's RandomState. Published evaluations choose their examples
// and make their texts with them, so the same prompts need the same draws.
//
// The Mersenne Twister is gonum's. This package contains how CPython seeds it and turns
// its words into numbers, choices, orders and samples (Lib/random.py,
// Modules/_randommodule.c of CPython 3.12), and numpy's bounded integers
// (numpy/random/src/distributions of numpy 2). Code of cage's own must not draw from
// here, but use internal/shuffle.
package pyrandom
