// Package score puts sequences of different lengths into batches of few shapes, so that a model can compute how likely
// the last tokens of each are. It knows only token ids: texts, tasks and models belong to the caller.
package score
