// Package score puts sequences of different lengths into batches of few shapes, so that a model tells how likely their
// last tokens are. It knows token ids only: texts, tasks and models belong to the caller.
package score
