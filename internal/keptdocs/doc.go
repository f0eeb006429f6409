// Package keptdocs writes results of studies into Markdown documents: tables, and single
// numbers within sentences, computed from files of kept results (host/study/kept). What
// stands between two comments is written anew:
//
//	<!-- kept {study = "effect", table = 1, where = {bits = "4"}} -->
//	… a table …
//	<!-- /kept -->
//
//	CAGE is lower by <!-- kept {study = "effect", table = 1, at = {bits = "4",
//	method = "CAGE"}, show = "difference"} -->−0.0085 [−0.0139, −0.0030]<!-- /kept -->.
//
// A table is a comment on a line of its own, and a number one within a line. With figure = 1 instead of a
// table, a line of its own gives a figure of the study, whose file goes into the folder pictures beside the document.
//
// Nothing else of a document is touched, and nothing is computed here that a study's report
// does not compute.
package keptdocs
