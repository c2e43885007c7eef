# The names of transformers that the code uses. transformers imports every module of 400 models for a type checker.
from transformers.cache_utils import DynamicCache as DynamicCache
from transformers.modeling_utils import PreTrainedModel as PreTrainedModel
from transformers.models.auto.configuration_auto import AutoConfig as AutoConfig
from transformers.models.auto.modeling_auto import AutoModelForCausalLM as AutoModelForCausalLM
from transformers.models.auto.modeling_auto import AutoModelForTokenClassification as AutoModelForTokenClassification
from transformers.models.auto.tokenization_auto import AutoTokenizer as AutoTokenizer
from transformers.models.llama.configuration_llama import LlamaConfig as LlamaConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM as LlamaForCausalLM
from transformers.models.mistral.configuration_mistral import MistralConfig as MistralConfig
from transformers.models.mistral.modeling_mistral import MistralForCausalLM as MistralForCausalLM
from transformers.models.qwen2.configuration_qwen2 import Qwen2Config as Qwen2Config
from transformers.models.qwen2.modeling_qwen2 import Qwen2ForCausalLM as Qwen2ForCausalLM
from transformers.models.qwen3.configuration_qwen3 import Qwen3Config as Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3ForCausalLM as Qwen3ForCausalLM
from transformers.tokenization_utils_tokenizers import PreTrainedTokenizerFast as PreTrainedTokenizerFast
