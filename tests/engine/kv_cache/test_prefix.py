import collections

from engine.config import SamplingParams
from engine.kv_cache.prefix import PrefixFinder, namespace_of
from engine.kv_cache.reuse_tree import Namespace, ReuseTree
from engine.llm_request import LlmRequest, RequestSpec


def request(tokens, request_id=1, **options):
    return LlmRequest(RequestSpec(request_id, tokens, SamplingParams(max_tokens=99), **options))


def finder_over(*paths, partial=True, size=2, space=None):
    tree = ReuseTree()
    for path in paths:
        node = tree.root(space or Namespace())
        for key in path:
            if key not in node.children:
                child = tree.add(node, key)
                child.blocks.append(0)
                node.num_device_children += 1
            node = node.children[key]
    return PrefixFinder(tree, tokens_per_block=size, partial=partial), tree


def keys(nodes):
    return [node.key for node in nodes]


def test_a_prompt_is_followed_block_by_block_until_one_is_missing():
    finder, _ = finder_over([(1, 2), (3, 4), (5, 6)], [(1, 2), (9, 9)])
    assert keys(finder.path(request([1, 2, 3, 4, 7, 8, 9]))) == [(1, 2), (3, 4)]
    assert keys(finder.path(request([4, 4, 4], request_id=2))) == []
    finder.check()


def test_the_last_prompt_token_is_never_taken():
    finder, _ = finder_over([(1, 2), (3, 4)])
    path = finder.path(request([1, 2, 3, 4]))
    assert keys(path) == [(1, 2)]
    node, count = finder.tail(request([1, 2, 3, 4]), 1, path[0])
    assert (node.key, count) == ((3, 4), 1)
    assert keys(finder.path(request([1, 2], request_id=2))) == []
    assert finder.tail(request([1], request_id=3), 0, None) is None


def test_the_beginning_of_a_block_counts_only_where_partial_reuse_is_on():
    on, _ = finder_over([(1, 2), (3, 4)])
    off, _ = finder_over([(1, 2), (3, 4)], partial=False)
    for finder, expected in ((on, ((3, 4), 1)), (off, None)):
        path = finder.path(request([1, 2, 3, 9, 9]))
        found = finder.tail(request([1, 2, 3, 9, 9]), 1, path[0])
        assert (found and (found[0].key, found[1])) == expected


def test_salts_do_not_see_each_other():
    finder, _ = finder_over([(1, 2)], space=Namespace("mine"))
    assert keys(finder.path(request([1, 2, 3], cache_salt="mine"))) == [(1, 2)]
    assert keys(finder.path(request([1, 2, 3], request_id=2, cache_salt="yours"))) == []
    assert keys(finder.path(request([1, 2, 3], request_id=3))) == []


def test_given_keys_stand_for_the_full_blocks_of_the_prompt_as_submitted():
    keyed = request(range(5), block_keys=("a", "b", "c"))
    finder, _ = finder_over(["a", "b", "c"], space=namespace_of(keyed))
    assert keys(finder.path(keyed)) == ["a", "b"]
    assert finder.key(keyed, 2) is None, "the third block is not full"
    assert finder.tail(keyed, 2, None) is None
    whole = request(range(4), request_id=2, block_keys=("a", "b"))
    path = finder.path(whole)
    assert keys(path) == ["a"]
    node, count = finder.tail(whole, 1, path[0])
    assert (node.key, count) == ("b", 1), "all tokens of an equal block but the last"


def test_a_prompt_is_never_read_further_than_it_matches():
    class Prompt(collections.UserList):
        def __getitem__(self, item):
            read.append(item)
            return range(len(self))[item]

    read = []
    finder, _ = finder_over([(0, 1), (2, 3)])
    prompt = Prompt(range(1_000_000))
    assert keys(finder.path(request(prompt))) == [(0, 1), (2, 3)]
    assert len(read) == 3
    assert max(item.stop for item in read) == 6


def test_asking_again_costs_one_look_and_sees_what_changed():
    finder, tree = finder_over([(1, 2), (3, 4)])
    asked = request([1, 2, 3, 4, 5, 6, 7])
    assert len(finder.path(asked)) == 2
    node = tree.add(finder.path(asked)[-1], (5, 6))
    node.blocks.append(0)
    assert keys(finder.path(asked)) == [(1, 2), (3, 4), (5, 6)]
    for gone in tree.remove(finder.path(asked)[1]):
        gone.blocks.clear()
    assert keys(finder.path(asked)) == [(1, 2)]
    finder.check()


def test_a_longer_prompt_after_a_pause_is_followed_further():
    finder, _ = finder_over([(1, 2), (3, 4)])
    paused = request([1, 2, 3])
    assert keys(finder.path(paused)) == [(1, 2)]
    paused.generated.extend([4, 5])
    paused.py_prompt_len = 5
    assert keys(finder.path(paused)) == [(1, 2), (3, 4)]


def test_what_is_remembered_is_bounded():
    finder, _ = finder_over([(1, 2)])
    for request_id in range(1000):
        finder.path(request([1, 2, 3], request_id=request_id))
    finder.check()
    finder.forget(999)
    finder.forget(999)
