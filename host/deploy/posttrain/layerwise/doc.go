// Package layerwise quantizes a trained language model block by block. It holds no more than the parameters of one
// block in memory, in addition to the residual streams of the calibration texts.
//
// Each layer is quantized for the inputs that it will have: those computed by the blocks and layers before it, which
// are already quantized. Package posttrain decides what the inputs say about a matrix, and how it is rounded; the
// programs of quantizers come from plugins. The caller decides where weights come from and where they go.
package layerwise
