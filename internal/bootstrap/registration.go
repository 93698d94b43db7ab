package bootstrap

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/tandem-llm/tandem/internal/id"
)

// Registration is the body of PUT /route: one prefill rank. Sizes that are
// absent mean 1.
type Registration struct {
	AttnTPSize   int `json:"attn_tp_size"`
	AttnTPRank   int `json:"attn_tp_rank"`
	AttnCPSize   int `json:"attn_cp_size"`
	AttnCPRank   int `json:"attn_cp_rank"`
	AttnDPSize   int `json:"attn_dp_size"`
	AttnDPRank   int `json:"attn_dp_rank"`
	PPSize       int `json:"pp_size"`
	PPRank       int `json:"pp_rank"`
	SystemDPSize int `json:"system_dp_size"`
	SystemDPRank int `json:"system_dp_rank"`

	RankIP   string `json:"rank_ip"`
	RankPort int    `json:"rank_port"`

	PageSize           int    `json:"page_size"`
	KVCacheDtype       string `json:"kv_cache_dtype"`
	LoadBalanceMethod  string `json:"load_balance_method"`
	DSACacheLayerSplit bool   `json:"enable_dsa_cache_layer_split"`
	PrefillHTTPPort    int    `json:"prefill_http_port"`
	Incarnation        Hex    `json:"incarnation,omitempty"`  // ours
	ControlAddr        string `json:"control_addr,omitempty"` // ours; rank_ip:rank_port if absent
}

// Hex is an incarnation as JSON carries it: 16 hexadecimal digits, because a
// JSON number holds 53 bits in most readers.
type Hex id.Incarnation

// MarshalText prints the digits.
func (h Hex) MarshalText() ([]byte, error) { return []byte(id.Incarnation(h).String()), nil }

// UnmarshalText reads them.
func (h *Hex) UnmarshalText(b []byte) error {
	v, err := strconv.ParseUint(string(b), 16, 64)
	if err != nil {
		return fmt.Errorf("incarnation %q: want 16 hexadecimal digits", b)
	}
	*h = Hex(v)
	return nil
}

// maxRanks bounds the product of the sizes: the largest fleets have hundreds.
const maxRanks = 4096

// topology is what all ranks must agree on.
type topology struct {
	tp, cp, dp, pp int
	pageSize       int
	dtype, balance string
	split          bool
	httpPort       int
}

func (t topology) ranks() int { return t.tp * t.cp * t.dp * t.pp }

// rank is a registration's place.
type rank struct{ dp, cp, tp, pp int }

// place checks a registration and says where it belongs. SGLang's DP axis is
// attention DP unless there is system DP.
func (r Registration) place() (topology, rank, error) {
	for _, n := range []*int{&r.AttnTPSize, &r.AttnCPSize, &r.AttnDPSize, &r.PPSize, &r.SystemDPSize} {
		if *n == 0 {
			*n = 1
		}
	}
	t := topology{tp: r.AttnTPSize, cp: r.AttnCPSize, dp: r.AttnDPSize, pp: r.PPSize, pageSize: r.PageSize,
		dtype: r.KVCacheDtype, balance: r.LoadBalanceMethod, split: r.DSACacheLayerSplit, httpPort: r.PrefillHTTPPort}
	at := rank{dp: r.AttnDPRank, cp: r.AttnCPRank, tp: r.AttnTPRank, pp: r.PPRank}
	if r.SystemDPSize != 1 {
		t.dp, at.dp = r.SystemDPSize, r.SystemDPRank
	}
	for _, a := range []struct {
		name       string
		rank, size int
	}{{"dp", at.dp, t.dp}, {"attn_cp", at.cp, t.cp}, {"attn_tp", at.tp, t.tp}, {"pp", at.pp, t.pp}} {
		if a.size < 1 || a.size > maxRanks || a.rank < 0 || a.rank >= a.size {
			return t, at, fmt.Errorf("%s rank %d of %d: want a rank below a size of 1 to %d", a.name, a.rank, a.size, maxRanks)
		}
	}
	if t.tp*t.cp > maxRanks || t.tp*t.cp*t.dp > maxRanks || t.ranks() > maxRanks {
		return t, at, fmt.Errorf("%d ranks, at most %d", t.ranks(), maxRanks)
	}
	if r.RankIP == "" || r.RankPort < 1 || r.RankPort > 65535 {
		return t, at, fmt.Errorf("rank_ip %q, rank_port %d: both are needed, the port in 1 to 65535", r.RankIP, r.RankPort)
	}
	return t, at, nil
}

// rankAnswer is GET /route's body for one rank.
type rankAnswer struct {
	RankIP      string `json:"rank_ip"`
	RankPort    int    `json:"rank_port"`
	Incarnation Hex    `json:"incarnation,omitempty"`
	ControlAddr string `json:"control_addr,omitempty"`
}

// control returns where the rank takes sessions. A wildcard address, which no
// one can dial, means the host that the registry was reached at.
func (a rankAnswer) control(registryHost string) (string, error) {
	addr := a.ControlAddr
	if addr == "" {
		addr = net.JoinHostPort(a.RankIP, strconv.Itoa(a.RankPort))
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("control address %q: %w", addr, err)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", fmt.Errorf("control address %q: port must be 1 to 65535", addr)
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = registryHost
	}
	return net.JoinHostPort(host, port), nil
}

// topologyAnswer is GET /route's body for four times -1.
type topologyAnswer struct {
	AttnTPSize          int    `json:"attn_tp_size"`
	AttnCPSize          int    `json:"attn_cp_size"`
	DPSize              int    `json:"dp_size"`
	PPSize              int    `json:"pp_size"`
	PageSize            int    `json:"page_size"`
	KVCacheDtype        string `json:"kv_cache_dtype"`
	FollowBootstrapRoom bool   `json:"follow_bootstrap_room"`
	DSACacheLayerSplit  bool   `json:"enable_dsa_cache_layer_split"`
	PrefillHTTPPort     int    `json:"prefill_http_port"`
}

func (t topology) answer() topologyAnswer {
	return topologyAnswer{AttnTPSize: t.tp, AttnCPSize: t.cp, DPSize: t.dp, PPSize: t.pp, PageSize: t.pageSize, KVCacheDtype: t.dtype,
		FollowBootstrapRoom: t.balance == "follow_bootstrap_room", DSACacheLayerSplit: t.split, PrefillHTTPPort: t.httpPort}
}
