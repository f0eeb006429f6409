// Package arrange makes batches of the tokens in token files: of texts [Windows], and
// [Mixture] of several files; of conversations [Rows]. It does so epoch after epoch, in
// orders that a seed fixes, and for evaluation in the order of the file ([Sequential],
// RowsConfig.InOrder).
//
// A batch depends on nothing but its number, so that training can be resumed from the number
// of the step alone. Batches are numbers: nothing here knows models or devices.
package arrange
