// Package kept stores the results of a study in one small file, which can be committed
// beside a document after the runs themselves are gone: for each cell its numbers, and
// what they were made with. Tables can be made from it as from the runs.
//
// A cell is identified by its ID, which ends in a hash of its configuration: if a study
// file now asks for something else, nothing is found. That plugins or data have changed
// is detected as for studies whose runs still exist ([File.FindStale]).
//
// host/study trains the cells; host/study/report makes the tables.
package kept
