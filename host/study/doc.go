// Package study runs many trainings that differ in what a study file says, evaluates what
// they have trained, and knows how far each has come.
//
// A study file names a base configuration, axes of settings, and what to report. [Load]
// resolves and checks every cell of the grid before anything runs, [Run] trains those
// that are missing, each in a process of its own, and [Study.Results] reads what is on
// disk at any time. A study lives in a directory that holds everything about it:
//
//	study.toml              a copy of the study file
//	cells/ID/               a run directory of host/train for each cell, and in it
//	cells/ID/cell.toml      the configuration that the cell is trained with
//	cells/ID/train.log      what its process wrote
//	cells/ID/model          the run directory of a model that is quantized, not trained
//	cells/ID/evaluations/   what its model answered, for each evaluation
//	cells/ID/eval.log       what the processes wrote that asked it
//	cells/ID/failed.json    why it failed
//	report/                 what host/study/report makes of the results
//
// A cell is known by its configuration: a study file may change, and cells whose
// configuration it still names are not trained again.
//
// Training is the business of host/train, what models are asked that of
// host/study/evaluation, tables and figures that of host/study/report,
// and what the terminal shows of a study under way that of host/console.
package study
