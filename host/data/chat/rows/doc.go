// Package rows stores the documents of conversations, and arranges them in the rows that
// training reads.
//
// A chat file ([Writer], [File]) holds documents as token ids, each marked with whether
// it carries loss. A [Sampler] puts them into rows of equal length: either several in a
// row, which must not see each other, or one ([Packing]). It does so epoch after epoch,
// in orders that a seed fixes. A batch depends on nothing but its number, so that
// training can be resumed from the step number alone. Package chat turns conversations
// into documents.
package rows
