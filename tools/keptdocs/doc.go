// Package keptdocs writes results of studies into Markdown documents: tables, and single numbers within sentences,
// computed from files of kept results (host/study/kept). It rewrites what is between two comments:
//
//	<!-- kept {study = "effect", table = 1, where = {bits = "4"}} -->
//	… a table …
//	<!-- /kept -->
//
//	CAGE is lower by <!-- kept {study = "effect", table = 1, at = {bits = "4",
//	method = "CAGE"}, show = "difference"} -->−0.0085 [−0.0139, −0.0030]<!-- /kept -->.
//
// A comment on a line of its own stands for a table, one within a line for a number. With figure = 1 instead of table =
// 1, a comment on a line of its own stands for a figure of the study, whose file goes into the folder pictures beside
// the document.
//
// Nothing else in a document is changed, and nothing is computed here that a study's report does not compute.
package keptdocs
