// Package ask asks a model the items of tasks and keeps its answers. Every answer is on disk before the next batch is
// computed, so that an evaluation that was killed can be continued, and its report is the same as without the
// interruption. Stored answers can be judged again without a model.
//
// The questions are defined in package tasks; how a model answers is up to the caller.
package ask
