// Package kept holds what came out of a study in one small file, which can be committed
// beside a document when the runs themselves are gone: for each cell its numbers, and what
// they were made with. From it, tables are made again as from the runs.
//
// A cell is known by its ID, which ends in a hash of its configuration: a study file that
// asks for something else finds nothing. That plugins or data are not what they were shows
// as in studies whose runs are there ([File.FindStale]).
//
// How cells are trained is the business of host/study, what tables look like that of
// host/study/report.
package kept
