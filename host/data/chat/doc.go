// Package chat turns conversations into documents for fine-tuning: token ids, each marked
// with whether the model learns to write it.
//
// A [Conversation] is parsed from a JSON row ([ParseRow]), written as text by a
// [Template], cut into ids by a tokenizer, and marked: the parts that the assistant says
// carry loss ([Encoder]). [Prepare] does this to whole data sets and stores the documents
// in the files of package rows, which also arranges them in the rows of batches. The
// language of templates is implemented in package jinja.
//
// Everything here is deterministic: the same rows and settings give the same bytes.
package chat
