// Package rows stores the documents of conversations, and lays them out in the rows that
// training reads.
//
// A chat file ([Writer], [File]) holds documents as token ids, each with the mark whether
// it carries loss. A [Sampler] puts them into rows of one length: several in a row, which
// must not see each other, or one ([Packing]); epoch after epoch in orders that a seed
// fixes. A batch depends on nothing but its number, so that training goes on from a step
// alone. How conversations become documents is the business of package chat.
package rows
