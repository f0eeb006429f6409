// Package ask puts the items of tasks to a model and keeps what it answers: every answer is on disk before the next batch
// is computed, so that an evaluation that was killed goes on, and its report does not depend on that. Answers can be judged
// again without a model.
//
// What the questions are is the business of package tasks, and how a model answers of the caller.
package ask
