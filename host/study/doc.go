// Package study trains models with many combinations of settings, which a study file specifies,
// evaluates them, and tracks their progress.
//
// A study file names a base configuration, axes of settings, and tables and figures to report.
// [Load] resolves and checks every cell of the grid before anything runs, [Run] trains the cells
// that have no result yet, each in its own process, and [Study.Results] reads the results on disk
// at any time. Everything about a study is in its directory:
//
//	study.toml              a copy of the study file
//	cells/ID/               a run directory of host/train for each cell, and in it
//	cells/ID/cell.toml      the configuration of the cell
//	cells/ID/train.log      the output of the training process
//	cells/ID/model          the run directory of a model that is quantized, not trained
//	cells/ID/evaluations/   the model's answers, for each evaluation
//	cells/ID/eval.log       the output of the evaluation processes
//	cells/ID/failed.json    why the cell failed
//	report/                 the pages, tables and figures that host/study/report writes
//
// A cell is identified by its configuration: after a change of the study file, cells whose
// configurations are unchanged are not trained again.
//
// Subpackages: report makes tables and figures (drawn by figure) from the results; snapshot stores
// results for use in documents; serve shows runs while they train; scaling fits the scaling law;
// bench measures training steps and the speed of the processor.
package study
