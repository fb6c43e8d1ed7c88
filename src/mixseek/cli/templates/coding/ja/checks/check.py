"""指定されたケースでanswer.pyを実行し、正しく出力すれば終了コード0で終わります。"""

import subprocess
import sys

CASES = {
    "counts": ("b a b\nA b\n", "b 3\na 2\n"),
    "ties": ("pear fig\nplum fig pear\n", "fig 2\npear 2\nplum 1\n"),
    "empty": ("", ""),
}


def fault(case: str) -> str:
    """そのケースでのanswer.pyの誤り。正しければ空文字列。"""
    given, expected = CASES[case]
    # 別のプログラムとして実行します。importすると、チェック自体を成功で終わらせることができてしまうためです。
    ran = subprocess.run([sys.executable, "answer.py"], input=given, capture_output=True, text=True, timeout=10)
    if ran.returncode:
        return ran.stderr[-400:]
    if ran.stdout.split() == expected.split():
        return ""
    return f"入力{given!r}に対して{ran.stdout[:200]!r}が出力されました。正しくは{expected!r}です。"


if __name__ == "__main__":
    sys.exit(fault(sys.argv[1]) or 0)
