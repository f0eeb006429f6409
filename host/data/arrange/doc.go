// Package arrange draws batches from token files: [Sampler] and [Mixture] for training, in an
// order that a seed fixes, and [Sequential] for evaluation, from front to back. A batch
// depends on nothing but its number.
package arrange
