export default function ({ data, parentElement }) {
  const host = parentElement.querySelector(".figures");
  if (isDrawn(host, data)) return;
  host.replaceChildren(...data.figures.map((figure) =>
    make("div", { class: "figure", title: figure.help || undefined },
      make("dt", { text: figure.label }),
      make("dd", {}, figure.href ? link(figure.href, {}, figure.value) : figure.value))));
}
