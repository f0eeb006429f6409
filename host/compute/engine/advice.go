package engine

import (
	"cmp"
	"regexp"
	"strings"
)

// advice maps patterns of XLA's error messages, in any case, to remedies. The first match applies.
var advice = []struct{ pattern, remedy string }{
	{"/dev/shm|shared memory segment", "/dev/shm is full or too small for NCCL: a container needs " +
		"--shm-size=1g, or set NCCL_SHM_DISABLE=1"},
	{"no space left on device", "a disk is full: XLA writes into $TMPDIR and device.cache"},
	{"resource_exhausted|out of memory|out_of_memory", "the GPU has too little memory: " +
		"halve train.batch and double train.accumulate, set train.recompute = \"blocks\", " +
		"or raise device.memory_fraction; `nvidia-smi` lists other programs on the GPU"},
	{"ptx compilation provider|ptxas/nvlink version|ptxas not found|" +
		"couldn't find a suitable version of ptxas", "XLA finds no assembler: " +
		"`pip install nvidia-cuda-nvcc`, or --xla_gpu_cuda_data_dir=DIRECTORY in XLA_FLAGS"},
	{"libdevice", "XLA finds no mathematical functions: `pip install nvidia-nvvm`, " +
		"or --xla_gpu_cuda_data_dir=DIRECTORY in XLA_FLAGS"},
	{"unsupported_ptx_version|unsupported toolchain|no_binary_for_gpu|no kernel image",
		"NVIDIA's driver is older than the toolkit, or the GPU is older or newer than both know: " +
			"update the driver and \"jax[cuda13]\""},
	{"dnn library initialization failed|cudnn_status_not_initialized|could not create cudnn handle",
		"cuDNN does not start: `pip install --upgrade nvidia-cudnn-cu13` (CUDA 12: -cu12), " +
			"and leave some memory of the GPU free"},
	{"illegal_address|illegal address|launch_failed|misaligned", "a kernel has failed: " +
		"device.kernels = \"graph\" and device.attention = \"plain\" do without the kernels " +
		"of cage and cuDNN"},
	{"ecc_uncorrectable|uncorrectable ecc|(fell|fallen) off the bus|device[_ ]unavailable",
		"the GPU has failed or is not free: `nvidia-smi` and `dmesg` say which and why; " +
			"leave it out with CUDA_VISIBLE_DEVICES"},
	{"nccl", "the GPUs do not reach each other: NCCL_DEBUG=INFO says why, " +
		"and NCCL_P2P_DISABLE=1 uses another connection"},
}

// advised appends the remedy to the first line of a message; XLA's messages can have many lines.
func advised(message string) string {
	for _, a := range advice {
		if regexp.MustCompile("(?i)" + a.pattern).MatchString(message) {
			first, rest, more := strings.Cut(message, "\n")
			first = cmp.Or(strings.TrimRight(first, " :"), "XLA failed") + ": " + a.remedy
			if more {
				return first + "\n" + rest
			}
			return first
		}
	}
	return message
}

// An advisedError is an XLA error whose message includes a remedy.
type advisedError struct{ error }

func (e advisedError) Error() string { return advised(e.error.Error()) }
func (e advisedError) Unwrap() error { return e.error }
