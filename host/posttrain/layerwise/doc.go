// Package layerwise quantizes a trained language model block by block: no more than the parameters of one block are in
// memory, beside the residual streams of the texts that it is calibrated with.
//
// Each layer is quantized for the inputs that it will have: those that come out of blocks and layers which are quantized
// already. What the inputs say of a matrix, and how it is rounded, is the business of package posttrain; programs of
// quantizers are those of plugins. Where weights come from and where they go, the caller decides.
package layerwise
