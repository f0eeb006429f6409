// Package dataset stores token ids: in token files, and in directories of them.
//
// A token file ([Writer], [File]) holds the ids of documents, one after the other. The
// documents are texts, or conversations, of which a mask says which tokens are trained on.
// A dataset is a directory with token files for training and for validation, the tokenizer
// that made them, and a [Manifest]. A [Folder] prepares one: the directory changes only at
// the end. [Verify] checks one against its manifest.
//
// How a document becomes ids is decided in packages data (texts) and chat (conversations);
// how tokens are arranged in batches, in package arrange.
package dataset
