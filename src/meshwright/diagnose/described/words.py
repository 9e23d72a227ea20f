"""Words with which people describe each kind of fault, with weights. From public reports and the programs' own terms.

A weight of 4 is a term that belongs to hardly anything else, 3 a term of this and a few others; 2 and 1 support such
terms and count for nothing without one.
"""

from __future__ import annotations


def _both(a: str, b: str) -> str:
    """Found where both are, in any order and on any line."""
    return rf"\A(?=[\s\S]*(?:{a}))(?=[\s\S]*(?:{b}))"



HANG = r"hang|卡住|卡死|\bhung\b|stuck|dead-?lock|freez|frozen|no (forward )?progress|wait(s|ing)? forever|time[sd]?[ -]?out|never (finish|return)"
SLOW = r"\bslow|慢|bottleneck|throughput|speed|scal(e|ing)\b|overhead|takes? (much |too |very )?long|latency|faster|longer"
OOM = r"out of memory|显存|内存|\boom\b|memory|\bGi?B\b"
WRONG = r"differ|mismatch|(not|n't|never) match|wrong|incorrect|inconsisten|twice|doubled|higher|lower|diverg|worse|drift"
NODES = r"多机|多节点|multi-?nodes?|inter-?node|cross-?node|across (the )?(nodes|machines)|(two|2|more|several|multiple) (nodes|machines)|\bnodes\b"
DIVIDE = r"divisib|multiple of|\bdivide|%|//|remainder"

WORDS: dict[str, tuple[tuple[int, str], ...]] = {
    "rank_conditional_collective": (
        (3, r"(only|just)\W+(\w+\W+){0,3}(rank[ _]?0|rank zero|main process|one rank|(some|certain) ranks|first rank)"),
        (3, r"(call|run|execut|invok|do)\w*\W+(\w+\W+){0,4}(for|on|in|by|from) (only )?(the )?(rank ?0|main process)|all (processes|ranks) must call"), (3, r"is_(main_process|global_zero|local_main\w*|rank_zero\w*)|rank_zero_only|\brank\(?\)? ?== ?0|if (local_)?rank\b"),
        (3, r"\b(inside|within|under|behind) (an? )?`?if\b|main[_ ]process (only|block)|wait_for_everyone"),
        (2, r"\bsav(e|es|ing)\b|checkpoint|\beval|validat|state_dict|early.?stop|logging|end of (the )?(training|epoch)|all_?gather|\breduce\b"),
        (3, _both(HANG, r"\bsav(e|es|ing)\b|checkpoint|ckpt|\beval|validat|end of (training|the epoch)|logging")),
        (1, HANG), (1, r"barrier"), (2, r"epoch \d+\+|at the end of"),
    ),
    "uneven_inputs": (
        (4, r"uneven|unequal|(different|varying|unbalanced|unmatched|fewer|less|more)\W+(\w+\W+){0,4}(lengths?|batches|samples|steps|iterations|inputs|sizes of data)"),
        (3, r"drop_last|last (incomplete )?batch|join\(|Join context|not evenly|exhaust|StopIteration|run(s)? out of (data|batches)"),
        (3, r"(complet|finish)\w*\W+(\w+\W+){0,6}(iterati|epoch|data|early|earlier|first|before)|still iterating"),
        (3, _both(HANG, r"dataset|data ?loader|shards?\b|sampler|iterable|num_workers|last (steps|iterations|batches)|\d+/\d+")),
        (1, HANG), (1, r"epoch|dataset|dataloader|sampler|iterable|eval|validation"),
    ),
    "mismatched_collectives": (
        (3, r"experts?\W+(\w+\W+){0,6}(any tokens|no tokens|tokens|activated|unused|gradients?)"),
        (3, r"(without|no|some|text-only|not all)\W+(\w+\W+){0,4}(images?|vision|visual|multi-?modal|audio|video)|(some|part of)\W+(\w+\W+){0,2}(modules?|layers?|branch\w*|parameters)\W+(\w+\W+){0,4}(skip|not|un)"),
        (3, r"mismatch\w* (between )?collective|different (collective|op|operation|shape|size|numel)|collectives? (mismatch|order|desync)|desync|only one rank"),
        (3, r"(zero|stage)[- ]?3|zero3|deepspeed z3|\bz3\b"), (2, r"moe|mixtral|mixture|experts"), (1, HANG),
        (2, r"conditional|data-?dependent|find_unused|different (code )?path|branch"),
    ),
    "concurrent_communicators": (
        (4, r"(all|multiple|two|several|both|different|2|3|concurrent)( active| nccl)* (communicators?|process groups?)"),
        (3, r"concurrent|different (cuda )?streams?|(two|multiple|separate) streams|launch order|interleav|LAUNCH_ORDER|MAX_CONNECTIONS"),
        (2, HANG), (2, r"100% (gpu )?util|matching sequence"), (1, r"nccl|communicator"),
    ),
    "p2p_ordering": (
        (4, r"send ?/ ?recv|send and recv|\b(i?send|i?recv)\b|batch_isend_irecv|p2p (op|comm)|point-to-point"),
        (2, HANG), (2, r"\border|both ranks|at the same time|simultaneous|bidirectional"), (1, r"pipeline|stage"),
    ),
    "compile_skew": (
        (4, r"cached kernels|recompil|torch\.?[_ ]?compile|dynamo|inductor|compil(e|ing|ation)|autotun|triton|jit\b"),
        (2, HANG), (2, r"(some|one|other|different|all|each|every) ranks?|rank \d"), (1, r"guard|dynamic shape|cache"),
    ),
    "long_non_collective_section": (
        (3, r"pre-?process|tokeniz|index(ing)?\b|download|(build|creat|load|prepar|cach|filter|map)\w* (the )?(large |big |huge )?(data|dataset|index|arrow)|\.map\(|generat(e|ion)|upload|sort"),
        (2, r"time[sd]?[ -]?out|watchdog|1800|600000|30 ?min"), (2, r"takes? (a )?(more|longer|too|very|about|over|\d+)|hours?\b|long[- ](running|time)|minutes"),
        (2, r"(rank ?0|main process|one process)\W+(\w+\W+){0,8}(while|other|wait)|others? wait"), (2, r"\d+%\|"),
    ),
    "watchdog_heartbeat": ((4, r"heart-?beat|watchdog( thread)? (got |is |was )?stuck|monitoring thread"), (1, r"\bGIL\b|teardown|destroy_process_group"), (1, HANG)),
    "oom_capacity": (
        (3, r"out of memory|\boom\b"), (2, r"full (parameter )?(fine-?tun|ft)|(even )?(with|at) (a )?(batch[ _-]?size|bs)( of| ?=)? ?1|even with|too (large|big)|does(n't| not) fit|still"),
        (1, r"\b\d+(\.\d+)?[bB]\b|optimizer state|adam|activation|long (context|sequence)"), (1, r"gpu|cuda|vram"),
    ),
    "fragmentation": (
        (4, r"fragment|expandable_segments|max_split_size|reserved (but|by|>>|memory)|unallocated|PYTORCH_(CUDA_|HIP_)?ALLOC_CONF"),
        (1, OOM), (2, r"empty_cache|varying|variable|dynamic (shape|length)|after (a few|some|several|many) (steps|iterations|epochs)"),
    ),
    "oom_logits": (
        (4, r"logits|cross[ -_]?entropy|log_?softmax|lm_head|(large |big )?vocab(ulary)?|fused (linear|ce)|liger|output layer"),
        (2, OOM), (1, r"peak|long|sequence|context|upcast|float32|fp32"),
    ),
    "oom_checkpoint": (
        (3, r"(sav|load|resum|restor|gather|export|consolidat|merg)\w*\W+(\w+\W+){0,5}(checkpoint|state|model|weights|ckpt)|checkpoint|ckpt|state_dict|save_model|save_pretrained"),
        (2, r"out of memory|\boom\b|memory"), (2, r"(after|during|when|while|at|before|on)\W+(\w+\W+){0,2}(sav|load|resum|checkpoint)"),
    ),
    "oom_rank0_skew": (
        (4, r"((gpu|cuda|device|rank)[ :#-]?0|first gpu|main gpu|master gpu)\W+(\w+\W+){0,8}(more|memory|oom|extra|higher|full|process|used|occup)|(more|extra|additional|unbalanced|imbalanced?|uneven)\W+(\w+\W+){0,5}(gpu|cuda|device|rank)[ :#-]?0|(processes|procs|memory)\W+(\w+\W+){0,3}on\W+(\w+\W+){0,2}(gpu|cuda|device|rank)[ :#-]?0"),
        (3, r"map_location|unbalanced (gpu )?memory|memory imbalance|imbalanced? (gpu )?memory"), (2, r"resum|load"), (1, OOM),
    ),
    "alloc_retries": (
        (4, r"alloc(ation)?s? retr|num_alloc_retries|cuda_?malloc|cuda_?free|thrash|memory pressure|flush\w* (the )?(cache|allocator)|cache flush"),
        (2, SLOW), (1, OOM),
    ),
    "host_oom": (
        (3, r"(cpu|host|system|main|node) (ram|memory|oom)|\bram\b|sigkill|signal 9|exit ?code:? -?9|-9\b|\bkilled\b|oom[- _]?kill|shared memory of workers"),
        (2, r"increas|leak|grow|larger and larger|run(s|ning)? out|exceed|exhaust|each (process|rank)|every (process|rank)"), (1, r"load|dataloader|worker|epoch|offload"), (1, OOM),
    ),
    "slow_network_wrong_transport": (
        (3, r"net/socket|\bsockets?\b|tcp(/ip)?\b|ethernet|fall(s|ing)?[ -]?back|instead of (ib|rdma|infiniband|roce|efa)|not us(e|ing) (ib|rdma|infiniband|roce|efa)|NCCL_IB_DISABLE"),
        (2, r"infiniband|\bib\b|roce|\befa\b|rdma|mlx5|ofi|libfabric|plugin"), (1, SLOW), (1, NODES), (1, r"bandwidth|GB/s|Gb/?p?s"),
    ),
    "slow_network_wrong_nic": (
        (4, r"wrong (nic|interface|network|ip|card)|docker0|virbr|SOCKET_IFNAME|network interface|management (network|nic)|slow(er)? (nic|interface)|\b(eth|eno|ens|enp|bond|ib)\d\w*|loopback|127\.0\.0\.1"),
        (2, r"\bnics?\b|interfaces?|subnet|route"), (1, SLOW), (1, HANG), (1, NODES),
    ),
    "slow_network_other": (
        (3, r"bandwidth|busbw|algbw|GB/s|Gb/?p?s|nccl-?tests?|all_?reduce_perf|alltoall|perftest|ib_write"),
        (2, r"low(er)?\b|slow|expected|below|only|drop|degrad|poor|half|worse|peak|theoretical"), (1, r"nccl|nvlink|nvswitch|ring|tree|channels|buffsize|switch|rail"),
    ),
    "gpudirect_rdma_off": ((4, r"\bgdr\b|gpu ?direct|peer_?mem|nv_peer|dma-?buf|gdrcopy|gdrdma"), (1, SLOW), (1, r"bandwidth|nic|\bib\b|rdma")),
    "p2p_acs_iommu": (
        (4, r"\bacs\b|iommu|NCCL_P2P_(DISABLE|LEVEL)|acsctl|vt-d|amd-vi"),
        (3, _both(HANG, r"rccl|rocm|\bamd\b|\bmi\d\d\d?x?\b|\d (or more|\+) gpus|more than \w+ gpus|threadripper|epyc")),
        (3, r"\bp2p\b|peer[- ]to[- ]peer|peer access|topo(logy)?\b|\bphb\b|\bpxb\b|pcie? switch|numa|CUDA_?P2P|simpleP2P"), (1, HANG), (1, SLOW),
    ),
    "network_error": (
        (4, r"status=\d+|vendor err|transport retry|retry (count|exceeded)|retransmi|link (is )?(down|flap)|flapping|ibv_\w+|connection (reset|timed out|refused|closed|aborted)|no route to host|unreachable|packet (loss|drop)|\bgid\b|completion (queue|with)|local protection|port (error|down)|pfc|cable"),
        (1, r"nccl|\bib\b|infiniband|roce|network|switch"), (1, r"error|fail|warn"),
    ),
    "shm_too_small": ((4, r"/dev/shm|shared memory|shm[-_ ]?size|shm_open|ipc=host|bus error|\bshm\b"), (1, r"docker|container|kubernetes|pod|dataloader")),
    "rendezvous": (
        (4, r"rendezvous|rdzv|tcp_?store|master_?addr|store[- _]based[- _]barrier|init_process_group|clients? (have )?joined|connect\w* to (the )?master|etcd|c10d store|worker_count"),
        (1, NODES), (1, HANG), (1, r"connect|socket|address|host ?name|dns|firewall"),
    ),
    "port_in_use": ((4, r"already in use|EADDRINUSE|errno:? ?98|port\W+(\w+\W+){0,4}(in use|occupied|conflict|taken|bound)|(failed to|cannot|could not) (bind|listen)"), (2, r"master_?port|\bport\b|29500")),
    "device_mapping": (
        (4, r"duplicate gpu|invalid device ordinal|set_device|same (gpu|device|card)|wrong (gpu|device)|device[_ ]ids?|rank to gpu mapping|only (one|1|the first) gpu|all (the )?(processes|ranks) (\w+ ){0,3}(gpu|cuda|device)[ :]?0"),
        (2, r"CUDA_VISIBLE_DEVICES|local_?rank|visible|nproc"),
    ),
    "hardware_fault": (
        (4, r"\becc\b|\bxid\b|fall(en)? off the bus|gpu (is |was )?(lost|dead)|hardware (error|failure|fault|issue|problem)|(bad|broken|faulty|defective) (gpu|node|card|memory|nic|cable|machine)|nvlink (error|down)|pcie (bus )?error|row.?remap|device handle|silent data corruption|\bsdc\b"),
        (1, r"drain|rma|replac|node"),
    ),
    "dataloader_bound": (
        (3, r"data[ -_]?load(er|ing|s)?\b|num_?workers?|prefetch|\bdisk|\bi/?o\b|webdataset|nfs|lustre|decod(e|ing)|augment|data (fetch|time|read|pipeline)|image ?folder|lmdb"),
        (2, r"\bslow|bottleneck|wait|utiliz|freez|stall|low\W+(\w+ )?usage|starv|idle|in time|increase|periodic|every \w+ iter"), (1, r"gpu"),
    ),
    "cpu_affinity": ((4, r"affinity|bind-to|kmp_|gomp_|taskset|(single|one|same) (cpu )?core|pinned to|cpu(s)? (summing|bind|pin)|cgroup cpu|numactl|OMP_NUM_THREADS|oversubscri"), (2, r"\b100 ?%|cores?\b|threads?"), (1, r"\bcpu\b")),
    "cpu_launch_bound": (
        (4, r"kernel launch|launch\w*\W+(\w+\W+){0,4}kernels?|(small|tiny|many|\d+) kernels|cuda ?graphs?|(cpu|host)[- ]?(bound|limited|overhead)|launch (bound|overhead|latency)|reduce-overhead|python overhead|eager"),
        (2, r"gpu (is )?(busy|idle|util)|low gpu util|step"), (1, SLOW),
    ),
    "low_mfu_small_work": ((4, r"\bmfu\b|model flops|floating point utili|tflop"), (2, r"\blow\b|poor|bad|small|only|tiny|short|0\.\d+ ?%|below"), (1, r"step time|batch|seq|size")),
    "straggler_gc": ((3, r"periodic|every \d+(th|st|nd|rd)? (step|iteration)|(step|iteration)s? (\w+ ){0,4}spikes?"), (4, r"\bgc\b|garbage[- ]collect|gc\.|gen(eration)?[- ]?2"), (1, r"pause|spike|jitter|periodic|straggl|slow")),
    "straggler_cpu": (
        (3, r"straggl|jitter|(one|single|random|different|varying) ranks?\W+(\w+\W+){0,6}(late|slow|delay|stall|longer)|no gpu work|context switch|daemon|cpu (contention|throttl|interference|steal)|noisy neighbou?r"),
        (2, r"\bcpu\b|host|python|thread"), (1, r"all_?gather|collective|allreduce|trace|longer"),
    ),
    "straggler_gpu": (
        (4, r"(slow|low-speed|bad|degraded)\w* (node|gpu|card|machine)|(one|this|that|some|certain|specific|particular|single)\W+(\w+\W+){0,2}(gpu|node|card|machine)s?\W+(\w+\W+){0,5}(slow|gen ?[1234])|gen ?[1234]\b|throttl|thermal|another (\w+ ){0,2}(node|machine)s?|overheat|power (cap|brake|limit)|clocks?\b|temperature|straggl"),
        (1, r"\bgpu|node"), (1, SLOW),
    ),
    "small_messages": (
        (4, r"bucket|too many|small (message|tensor|all-?reduce|all-?gather|collective|transfer|param)|many (small )?(collective|all-?reduce|all-?gather|nccl)|latency[- ]bound|coalesc|per[- ](parameter|tensor|layer) (all|comm)|gradient fusion|tensor fusion|overlap_comm"),
        (2, SLOW), (1, r"all-?_?reduce|all-?_?gather|communication|ddp|zero"), (1, r"\d+ ?ms"),
    ),
    "zero3_internode": (
        (3, r"zero[- ]?(stage[- ]?)?3|stage[- ]?3|zero3|fsdp|full[_ -]?shard|hpz|mics|hsdp|hybrid[_ -]?shard"), (3, NODES), (2, SLOW + r"|time increase|bandwidth"),
    ),
    "tp_comm_bound": (
        (3, r"tensor[- _]?(model[- _]?)?parallel|\btp\b ?=? ?\d*|tp[_-]?size"), (2, SLOW + r"|speed-?up|communicat|all-?reduce"), (2, NODES + r"|nvlink|pcie"), (1, r"throughput|bandwidth|row.?parallel"),
    ),
    "pipeline_imbalance": (
        (4, r"bubble|(stage|pipeline)s?\W+(\w+\W+){0,5}(imbalanc|unbalanc|uneven|balance|idle|slower)|(imbalanc|unbalanc|uneven)\w*\W+(\w+\W+){0,4}(stage|pipeline)|(last|first) (pipeline )?(stage|rank)|stage times?"),
        (1, SLOW), (1, r"lm_head|embedding|layers|micro-?batch"), (2, r"pipeline|\bpp\b"),
    ),
    "moe_imbalance": (
        (3, r"experts?\b|\bmoe\b|rout(er|ing)|mixture"), (3, r"imbalanc|unbalanc|load[- ]balanc|uneven|\bhot\b|skew|overload|capacity|collaps|drop(ped|ping)? tokens|aux(iliary)?[-_ ]?loss|token distribution"), (1, SLOW + "|" + OOM), (1, r"\bep\b|ep[_ ]size|expert parallel"),
    ),
    "batch_config": (
        (4, r"train_batch_size|global[- _]?batch[- _]?size|micro[-_ ]?batch([-_ ]?size)?|gradient_acc\w*|per_device_train_batch|batch[- _]related|batch[-_ ]?size"),
        (3, r"not (equal|divisible|consistent)|must be|inconsisten|assert|!=|should be (equal|divisible)|divisib|mismatch|auto"),
    ),
    "world_size_layout": (
        (4, r"world[- _]?size|number of (gpus|processes|ranks|devices)|num_(gpus|processes|nodes)|parallel dims|device ?mesh|data[- _]parallel[- _]size"), (3, r"not divisible|must|!=|should|not equal|mismatch|wrong|instead of|only|detect|treat|0\b|smaller|less than|bigger"), (1, r"\b(tp|pp|dp|cp|ep)\b|tensor|pipeline|launcher|mesh"),
    ),
    "divisibility_heads": ((4, r"\bheads?\b|num_(attention_)?heads|n_head"), (3, DIVIDE), (2, r"\btp\b|tensor|mp_size|world_?size|parallel|gpus")),
    "divisibility_gqa": ((4, r"k/?v[- _]?heads?|num_?query_?groups?|num_key_value_heads|num_kv_heads|\bgqa\b|\bmqa\b|query[- ]groups?|n_kv_head"), (2, DIVIDE + r"|replicat|less than|smaller|shape|view|reshape"), (2, r"\btp\b|tensor|parallel|heads")),
    "divisibility_sequence": (
        (4, r"seq(uence)?[-_ ]?(len(gth)?s?|dim|parallel)|ulysses|context[-_ ]?parallel|first dimension of the tensor|\bcp[-_ ]?size|ring attention"), (3, DIVIDE + r"|\bpad"), (1, r"\btp\b|\bcp\b|tensor[- _]parallel|parallel"),
    ),
    "vocab_padding": ((4, r"vocab"), (3, DIVIDE + r"|\bpad|resiz|uneven|extra tokens|embedding"), (1, r"\btp\b|world size|resum|loss|tensor parallel|shard")),
    "pipeline_layout": (
        (4, r"num[-_ ]?layers|number of (transformer )?layers|(first|last)_pipeline|pp[_ ]layers?|layers? per (stage|rank)|(pipeline|stage)\W+(\w+\W+){0,4}(layout|split|partition|layers)|partition_method|empty stage|layer (order|offset|numbering|index)"),
        (3, r"\d+[- ]layers?\b"), (2, r"divisib|wrong|missing|incorrect|assert|drop|silently|false|unrealistic|must|not equal"), (2, r"pipeline|\bpp\b|stage|vpp|virtual"),
    ),
    "pipeline_tied_embeddings": ((4, r"tied|tie_word|weight[- ]tying|tying|share[d]?[- _](embedding|weights?|param)|untie|embedding(s)? (is |are )?(tied|shared)"), (3, r"pipeline|\bpp\b|stage|actor"), (1, r"gradient|sync|drift|lm_head|embedding")),
    "ddp_unused_parameters": ((4, r"unused[- _]param|not? (receive|get|have) (a )?grad|find_unused|finished reduction|not used in producing loss|without grad"), (1, r"\bddp\b|distributeddataparallel")),
    "ddp_checkpoint_reentrant": ((4, r"ready (twice|only once)|use_reentrant|re-?entrant|static_graph|_set_static_graph"), (1, r"\bddp\b|checkpoint")),
    "fsdp_dtype": (
        (4, r"uniform dtype|mixed? dtypes?|(same|different) dtypes?|flatten tensors|dtype mismatch|expected\W+(\w+\W+){0,6}(bfloat16|float|half|bf16)|(but (got|found)|and) (torch\.)?(bfloat16|float|half|c10::\w+)"), (2, r"\bfsdp|fully_shard|flat_?param|qlora|quantiz|uint8|int8"), (1, r"dtype|bf16|float32"),
    ),
    "checkpoint_reshard": (
        (3, r"checkpoint|ckpt|resum|state_dict|re-?shard|universal|convert|load(ing|ed)?\b"), (3, r"(different|another|changed?|new|more|fewer|less)\W+(\w+\W+){0,4}(world|number|layout|tp|pp|dp|parallel\w*|gpus|nodes|ranks|size)|dp world size|size mismatch|shape mismatch|numel|key\(?s?\)? (in|mismatch)|does not match|not match|partition count|(size of tensor|copying a param)"), (1, r"zero|optimizer|shard|fsdp|megatron|\btp\b|\bpp\b"),
    ),
    "fp16_overflow": ((4, r"loss[- _]?scal(e|er|ing)|overflow|underflow|skipp(ing|ed) step|fp16\W+(\w+\W+){0,6}(nan|inf)|(nan|inf)\W+(\w+\W+){0,6}fp16|nan loss|loss\W+(\w+\W+){0,4}\bnan\b|becomes? nan"), (2, r"\bfp16\b|\bhalf\b|float16|amp\b")),
    "grad_norm_layout": (
        (4, r"grad(ient)?s?[- _]?(norm|scal|clip|average|averag|accumul|reduc|sync)|(gradients?|grads?|losses|loss)\W+(\w+\W+){0,6}(differ|match|wrong|incorrect|doubled|scaled|higher|lower|larger|smaller|too|increase|divided|multipl)"),
        (2, r"\b(tp|dp|cp|ep|pp|sp|fsdp|ddp)\b|tensor[- ]parallel|context parallel|expert parallel|sequence parallel|world[- _]?size|accumulation|ranks|gpus|copies|unsharded"), (2, WRONG),
    ),
    "lr_schedule_scaling": (
        (4, r"(lr|learning[- ]?rate)[- _]?(schedul|decay|warm)|schedul\w*\W+(\w+\W+){0,5}(step|lr|learning)|lr_scheduler|scheduler|(lr|learning[- ]?rate)\W+(\w+\W+){0,6}(decay|decreas|drop|zero|minimum|faster|too)"),
        (2, r"num_processes|gpus|times|faster|repeat|too (early|fast|quick)|per (process|gpu|update)|steps?\b|world size|multi-?gpu"),
    ),
    "batch_lr_scaling": (
        (3, r"(accuracy|converg\w*|performance|result|map|quality|loss|recall|score|metric)\W+(\w+\W+){0,10}(gpus?|batch|ddp|distributed|cards)|(gpus?|batch|ddp|distributed|cards)\W+(\w+\W+){0,10}(accuracy|worse|converg\w*|performance|result|lower|map|quality)"),
        (3, _both(r"accuracy|converg|\bmap\b|\b[wc]er\b|perplexity|top-?1|f1\b|bleu|quality|score", r"horovod|\bddp\b|distributed|multi[- ]?gpu|gpus|batch[- _]?size")),
        (3, r"learning[- ]?rate|\blr\b|batch[- ]?sizes?|linear scaling|contrastive|sync_?bn|batch ?norm|effective batch"), (1, r"number of gpus|more gpus|multi-?gpu|single gpu|\bvs\b"),
    ),
    "data_sharding": (
        (4, r"distributed_?sampler|set_epoch|iterable ?dataset|same (data|samples?|batch(es)?|order|examples?|inputs?|indices)|duplicat\w*|split_dataset_by_node|shard\w*\W+(\w+\W+){0,4}data|data\W+(\w+\W+){0,4}shard|(each|every|all) (rank|process|gpu|worker)s?\W+(\w+\W+){0,4}(same|full|entire|whole|all|identical)"),
        (1, r"shuffl|seed|sampler|epoch|dataset"),
    ),
    "tooling": (
        (4, r"memory_?viz|torchfrtrace|tensorboard|profiler|flight[- ]recorder|trace (viewer|file|analy)|\bhta\b|holistic|nsys|nsight|perfetto|chrome://|snapshot|monitor"), (2, r"error|crash|empty|fail|blank|unhandled|exception|unreadable|can'?t open|unsupported"),
    ),
}  # fmt: skip
