// Package pyrandom draws the random numbers that programs in Python draw: those of
// CPython's random.Random, and of numpy's RandomState. Evaluations choose their examples
// and make their texts with these, so whoever wants the same prompts needs the same draws.
//
// The Mersenne Twister is gonum's. What stands here is how CPython seeds it and makes
// numbers, choices, orders and samples of its words (Lib/random.py, Modules/_randommodule.c
// of CPython 3.12), and numpy's bounded integers (numpy/random/src/distributions of numpy
// 2). Nothing of cage's own draws from here: internal/shuffle is for that.
package pyrandom
