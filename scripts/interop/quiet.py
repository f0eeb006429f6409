"""Keeps transformers off the network, and silent. To be imported before it."""
import os
import warnings

os.environ["HF_HUB_OFFLINE"] = os.environ["TQDM_DISABLE"] = "1"
from transformers.utils import logging

warnings.filterwarnings("ignore")
logging.set_verbosity_error()
logging.disable_progress_bar()
