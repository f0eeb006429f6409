// Package chat turns conversations into documents that a model is fine-tuned on: token
// ids, each with the mark whether the model learns to write it.
//
// A [Conversation] is read from a row of JSON ([ParseRow]), written as text by a
// [Template], cut into ids by a tokenizer, and marked: the parts that the assistant says
// carry loss ([Encoder]). [Prepare] does that to whole data sets, and stores the documents
// in the files of package rows, which also puts them into the rows of batches. The language
// of templates is in package jinja.
//
// Everything here is deterministic: the same rows and settings give the same bytes.
package chat
